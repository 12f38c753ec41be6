#!/bin/sh
set -e
cd /app
sort -n numbers.txt > sorted.txt
