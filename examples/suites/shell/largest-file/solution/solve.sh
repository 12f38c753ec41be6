#!/bin/sh
set -e
cd /app
ls -S parts | head -n 1 > largest.txt
