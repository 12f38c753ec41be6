#!/bin/sh
set -e
cd /app
find data -name "*.log" -delete
