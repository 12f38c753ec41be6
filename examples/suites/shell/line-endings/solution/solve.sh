#!/bin/sh
set -e
cd /app
sed -i 's/\r$//' windows.txt
