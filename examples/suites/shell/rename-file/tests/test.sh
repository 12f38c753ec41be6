#!/bin/sh
if (
cd /app || exit 1
[ ! -e draft.txt ] && [ "$(cat final.txt)" = ready ]
); then
    echo 1 > /logs/verifier/reward.txt
else
    echo 0 > /logs/verifier/reward.txt
fi
