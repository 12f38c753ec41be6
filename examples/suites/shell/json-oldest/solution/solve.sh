#!/bin/sh
set -e
cd /app
python3 -c "import json; print(max(json.load(open('people.json')), key=lambda one: one['age'])['name'])" > oldest.txt
