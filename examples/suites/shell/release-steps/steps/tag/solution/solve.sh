#!/bin/sh
set -e
cd /app
echo "v$(cat VERSION)" > TAG
