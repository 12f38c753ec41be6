#!/bin/sh
set -e
cd /app
cat /data/*.txt | awk '{ sum += $1 } END { print sum }' > sum.txt
