#!/bin/sh
if (
cd /app || exit 1
! grep -q "$(printf "\r")" windows.txt && [ "$(wc -l < windows.txt)" -eq 2 ]
); then
    echo 1 > /logs/verifier/reward.txt
else
    echo 0 > /logs/verifier/reward.txt
fi
