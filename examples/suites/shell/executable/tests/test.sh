#!/bin/sh
if (
cd /app || exit 1
[ -x run.sh ] && [ ! -x notes.txt ] && [ "$(./run.sh)" = running ]
); then
    echo 1 > /logs/verifier/reward.txt
else
    echo 0 > /logs/verifier/reward.txt
fi
