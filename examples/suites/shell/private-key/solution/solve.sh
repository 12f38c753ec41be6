#!/bin/sh
set -e
cd /app
chmod 600 key.pem
