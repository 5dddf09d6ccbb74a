"""Small experiments that anybody can repeat: models, text, training and evaluation."""
