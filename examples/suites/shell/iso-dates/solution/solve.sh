#!/bin/sh
set -e
cd /app
awk -F. '{ print $3 "-" $2 "-" $1 }' dates.txt > iso.txt
