"""Who owns a taken task: sessions, and how the death of one becomes known."""
