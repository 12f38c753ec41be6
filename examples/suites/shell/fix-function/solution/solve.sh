#!/bin/sh
set -e
cd /app
printf 'def mean(values):\n    return sum(values) / len(values) if values else 0\n' > stats.py
