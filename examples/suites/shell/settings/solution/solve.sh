#!/bin/sh
set -e
cd /app
sed -i 's/^PORT=.*/PORT=8080/' settings.env
