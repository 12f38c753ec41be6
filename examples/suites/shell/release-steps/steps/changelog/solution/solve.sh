#!/bin/sh
set -e
cd /app
sed -i '1i 1.5.0 Sharpen the blade' CHANGES
