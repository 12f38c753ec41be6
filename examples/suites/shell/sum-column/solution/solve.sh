#!/bin/sh
set -e
cd /app
awk -F, 'NR > 1 { sum += $2 } END { print sum }' sales.csv > total.txt
