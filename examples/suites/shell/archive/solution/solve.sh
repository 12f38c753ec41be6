#!/bin/sh
set -e
cd /app
tar -czf src.tar.gz src
