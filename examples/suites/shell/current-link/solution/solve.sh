#!/bin/sh
set -e
cd /app
ln -s releases/2 current
