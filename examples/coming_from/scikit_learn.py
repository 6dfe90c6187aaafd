from sklearn.linear_model import LogisticRegression
from task import records

X, y, X_test, y_test, hospital = records()
model = LogisticRegression().fit(X, y)
accuracy = model.score(X_test, y_test)
print(f"accuracy {accuracy:.3f}, not private")
