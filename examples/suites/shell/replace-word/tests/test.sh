#!/bin/sh
if (
cd /app || exit 1
! grep -q colour story.txt && [ "$(grep -o color story.txt | wc -l)" -eq 3 ]
); then
    echo 1 > /logs/verifier/reward.txt
else
    echo 0 > /logs/verifier/reward.txt
fi
