#!/bin/sh
# Runs in the image that tests/Dockerfile makes: the agent never sees what is expected.
if cmp -s /app/reversed.txt /checker/expected.txt; then
    echo 1 > /logs/verifier/reward.txt
else
    echo 0 > /logs/verifier/reward.txt
fi
