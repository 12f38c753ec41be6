#!/bin/sh
set -e
cd /app
awk '$2 == "ERROR" { print $1 }' service.log | sort -u > hours.txt
