#!/bin/sh
set -e
cd /app
echo 1.5.0 > VERSION
