#!/bin/sh
if (
cd /app || exit 1
tar -tzf src.tar.gz | grep -q "src/main.txt" && tar -tzf src.tar.gz | grep -q "src/lib/part.txt"
); then
    echo 1 > /logs/verifier/reward.txt
else
    echo 0 > /logs/verifier/reward.txt
fi
