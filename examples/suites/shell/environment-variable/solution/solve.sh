#!/bin/sh
set -e
cd /app
echo "$CODEWORD" > codeword.txt
