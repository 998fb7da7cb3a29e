"""Speed and memory, measured beside a floor taken in the same run: ratios travel, absolute numbers do not."""
