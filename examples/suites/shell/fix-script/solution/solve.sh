#!/bin/sh
set -e
cd /app
sed -i 's/6 \* 8/6 * 7/' answer.sh
