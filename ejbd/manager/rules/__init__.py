"""Rules: from an end, a situation or a report to effects. No room of rules imports another, and none writes."""
