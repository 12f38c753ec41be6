#!/bin/sh
set -e
cd /app
wc -l < input.txt > count.txt
