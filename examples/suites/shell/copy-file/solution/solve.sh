#!/bin/sh
set -e
cd /app
mkdir -p backup
cp plan.txt backup/
