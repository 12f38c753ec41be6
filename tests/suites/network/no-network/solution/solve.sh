#!/bin/sh
set -e
cd /app
echo 42 > sum.txt
