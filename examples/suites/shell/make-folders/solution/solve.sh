#!/bin/sh
set -e
cd /app
mkdir -p build/out/logs
