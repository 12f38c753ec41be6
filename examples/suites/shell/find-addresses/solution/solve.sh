#!/bin/sh
set -e
cd /app
grep -oE '[a-z.]+@[a-z]+\.[a-z]+' letter.txt > addresses.txt
