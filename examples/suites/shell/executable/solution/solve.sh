#!/bin/sh
set -e
cd /app
chmod a+x run.sh
