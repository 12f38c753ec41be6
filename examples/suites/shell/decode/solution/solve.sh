#!/bin/sh
set -e
cd /app
base64 -d secret.b64 > secret.txt
