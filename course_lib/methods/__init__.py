"""One file an idea. A method is an `nn.Module` that `training.fit` trains (see there)."""
