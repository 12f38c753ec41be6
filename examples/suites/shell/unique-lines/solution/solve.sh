#!/bin/sh
set -e
cd /app
sort -u names.txt > unique.txt
