"""What a run would use and cost, before anything is sent: the real parts play it with nobody there."""
