#!/bin/sh
set -e
cd /app
tac words.txt > reversed.txt
