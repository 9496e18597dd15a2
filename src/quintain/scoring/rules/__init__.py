"""The scorer `rules`: faults in a run's steps, found without a judge. One module for each rule; `scorer` weighs them."""
