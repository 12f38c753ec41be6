#!/bin/sh
set -e
cd /app
greet stone > greeting.txt
