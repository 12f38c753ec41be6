#!/bin/sh
set -e
cd /app
grep -c failed report.txt > failed.txt
