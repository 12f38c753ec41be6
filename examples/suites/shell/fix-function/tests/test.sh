#!/bin/sh
if (
cd /app || exit 1
python3 -c "import stats; assert stats.mean([1, 2, 6]) == 3 and stats.mean([]) == 0"
); then
    echo 1 > /logs/verifier/reward.txt
else
    echo 0 > /logs/verifier/reward.txt
fi
