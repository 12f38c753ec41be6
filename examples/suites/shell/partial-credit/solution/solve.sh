#!/bin/sh
set -e
cd /app
echo 1 > one.txt
echo 2 > two.txt
echo 3 > three.txt
