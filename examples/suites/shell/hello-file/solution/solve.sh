#!/bin/sh
set -e
cd /app
echo hello > greeting.txt
