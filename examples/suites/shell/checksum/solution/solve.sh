#!/bin/sh
set -e
cd /app
sha256sum data.txt | cut -d" " -f1 > sum.txt
