#!/bin/sh
set -e
cd /app
sed -i 's/colour/color/g' story.txt
