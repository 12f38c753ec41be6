#!/bin/sh
set -e
cd /app
join ages.txt towns.txt > joined.txt
